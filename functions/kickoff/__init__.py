"""Kickoff: one event in, exactly one Vertex AI training job out, and a record of how it ended."""
