package keys

import "strings"

// nearest returns the candidate that a person most likely meant by name, or ""
// when none is near enough to be worth suggesting. A dotted name whose last part
// is a candidate's last part is near whatever section it was put in.
func nearest(name string, candidates []string) string {
	best, bestDistance := "", len(name)+1
	for _, c := range candidates {
		if d := editDistance(strings.ToLower(name), strings.ToLower(c)); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	if bestDistance <= max(2, len(name)/4) {
		return best
	}
	leaf := name[strings.LastIndex(name, ".")+1:]
	for _, c := range candidates {
		if strings.HasSuffix(c, "."+leaf) {
			return c
		}
	}
	return ""
}

// Hint renders the candidate that a person most likely meant by a name that does not exist,
// as the tail of a message; "" when none is near. Commands use it for their names too.
func Hint(name string, candidates []string) string {
	if n := nearest(name, candidates); n != "" {
		return "; did you mean " + n + "?"
	}
	return ""
}

// editDistance counts the insertions, deletions, substitutions and swaps of
// neighbours that turn a into b (optimal string alignment).
func editDistance(a, b string) int {
	s, t := []rune(a), []rune(b)
	older, previous, current := make([]int, len(t)+1), make([]int, len(t)+1), make([]int, len(t)+1)
	for j := range previous {
		previous[j] = j
	}
	for i := 1; i <= len(s); i++ {
		current[0] = i
		for j := 1; j <= len(t); j++ {
			cost := 1
			if s[i-1] == t[j-1] {
				cost = 0
			}
			current[j] = min(previous[j]+1, current[j-1]+1, previous[j-1]+cost)
			if i > 1 && j > 1 && s[i-1] == t[j-2] && s[i-2] == t[j-1] {
				current[j] = min(current[j], older[j-2]+1)
			}
		}
		older, previous, current = previous, current, older
	}
	return previous[len(t)]
}
