"""The honest clock: variants take turns in processes of their own, and every claim about speed is a printed line."""
