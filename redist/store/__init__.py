"""Arrays on disk: checkpoints and chunk stores."""
