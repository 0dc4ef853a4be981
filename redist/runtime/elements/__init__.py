"""Move chosen elements between tiles: by index along dims, or by position in the whole array."""
