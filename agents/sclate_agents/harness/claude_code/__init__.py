"""Claude Code, unmodified: its native binary in print mode, stream-json both ways."""
