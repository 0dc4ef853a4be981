"""What a benchmark measured: values, a table, a chart."""
