"""What ``redist doctor`` reports: what this process can move arrays with, and how ranks reach each other."""
