"""What users hold in their hands: clients, producers, subscriptions, transactions."""
