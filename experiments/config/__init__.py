"""From an experiment file to a checked, resolved experiment: YAML, its schema, overrides, errors."""
