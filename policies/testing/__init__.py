"""The public policy contract: a test class for policies of one's own."""
