"""Which user a client is: tokens, logins, and the audit log of what was denied or changed."""
