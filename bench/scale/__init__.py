"""Scale on paper: transfers on machines that are not here, simulated, and checked where they are."""
