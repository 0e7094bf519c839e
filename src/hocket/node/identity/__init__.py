"""Who is there: tokens, logins, and the audit log of what was denied or changed."""
