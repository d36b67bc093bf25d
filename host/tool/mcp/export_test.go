package mcp

// Reaches is reaches, for its table.
var Reaches = reaches

// Up reports whether a server is connected now.
func Up(s *Servers, name string) bool {
	of := s.servers[name]
	of.mu.Lock()
	defer of.mu.Unlock()
	return of.conn != nil
}

// Rest makes the pauses after failures as long as they get.
func Rest(s *Servers) {
	for _, of := range s.servers {
		of.pause = maxPause
	}
}
