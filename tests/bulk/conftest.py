"""Faults are for processes of their own; collected here, they would be everybody's."""

collect_ignore = ["faults"]
