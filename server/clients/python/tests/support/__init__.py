"""What the tests share: a fake server, a real one, frames as a server writes them, and the golden vectors."""
