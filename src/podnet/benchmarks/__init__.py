"""The paper's tables and figures as named experiments, and what runs them."""
