"""Tiles with shape and dtype but no bytes: functions run on them and leave behind what they would do."""
