package doctor

// ProfilesDo is what each kind of roles is for.
func ProfilesDo() map[string]string {
	does := make(map[string]string)
	for _, p := range profiles() {
		does[p.name] = p.does
	}
	return does
}
