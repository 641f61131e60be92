package shares

// Abandon ends the goroutine of a process that dies.
func (s *Share) Abandon() {
	s.cancel()
	<-s.done
}
