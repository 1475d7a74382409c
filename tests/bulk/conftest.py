"""Exclude the fault injection from collection: importing it would patch this process."""

collect_ignore = ["fault_injection"]
