"""Who may answer for an EIP. Today: eligibility, and a speaker without rivals."""
