"""What drives the client's cores: threads with a lock, or an asyncio loop."""
