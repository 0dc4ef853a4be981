"""The ranks of a communicator: who shares a node, how they meet, agree, wait and fail together."""
