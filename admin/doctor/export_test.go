package doctor

// ProfilesDo returns the purpose of each profile.
func ProfilesDo() map[string]string {
	does := make(map[string]string)
	for _, p := range profiles() {
		does[p.name] = p.does
	}
	return does
}
