package access

// HashAt returns the hash of a password at another cost.
func HashAt(password string, memory, time uint32) string {
	h := passwordHash{memory: memory, time: time, threads: 1, salt: []byte("0123456789abcdef")}
	h.key = h.of(password, passwordKey)
	return h.String()
}

// Occupy takes all slots of password checks until free is called.
func Occupy(s *Sessions) (free func()) {
	for range cap(s.slots) {
		s.slots <- struct{}{}
	}
	return func() {
		for range cap(s.slots) {
			<-s.slots
		}
	}
}
