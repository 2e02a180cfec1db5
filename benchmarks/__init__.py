"""Speed, memory and scale of Mem++, beside what a user would pick instead (`python -m benchmarks`)."""
