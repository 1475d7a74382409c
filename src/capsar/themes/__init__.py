"""Sort mentions into themes of one's own."""
