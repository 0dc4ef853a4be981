"""Tasks of a program and their memory as values, so that what is found can be judged without the finder."""
