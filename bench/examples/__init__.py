"""The examples beside the same programs written by hand."""
