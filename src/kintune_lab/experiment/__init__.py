"""What an experiment is made of: cells, options, tables, sections of its report."""
