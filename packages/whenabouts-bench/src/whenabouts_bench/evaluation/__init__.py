"""Measure runs against judgements: metrics of named protocols, significance, reports."""
