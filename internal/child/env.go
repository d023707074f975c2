package child

import "strings"

// Env is the environment of a program, made of the caller's: how to find libraries and
// temporary files, messages in English, and nothing else, so that no variable changes the
// program's behaviour and no secret of the caller stays readable in a process that may
// outlive it.
func Env(environ []string) []string {
	env := []string{"LC_ALL=C", "HOME=/"}
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		switch {
		case name == "PATH", name == "TMPDIR", name == "TZDIR", name == "GOCOVERDIR",
			name == "LD_LIBRARY_PATH", strings.HasPrefix(name, "DYLD_"):
			env = append(env, kv)
		}
	}
	return env
}
