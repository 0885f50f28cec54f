"""Integrations with other tuners: exchange of records, and FamilySeer inside the stock tuner."""
