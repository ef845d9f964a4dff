"""Tables, figures, reports, model cards and records."""
