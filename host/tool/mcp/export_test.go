package mcp

// Up reports whether a server is connected now.
func Up(s *Servers, name string) bool {
	of := s.servers[name]
	of.mu.Lock()
	defer of.mu.Unlock()
	return of.conn != nil
}
