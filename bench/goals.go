package main

// goals are what the project promised itself, by benchmark and figure. A governed job is one
// with health checks; what it may cost others is judged beside tpcb-like transactions.
func goals() map[string]goal {
	return map[string]goal{
		"walk/inbox_ratio":     {">=", 0.95}, // of the speed of one INSERT … SELECT
		"walk/push_ratio":      {">=", 0.95},
		"walk/inbox_chunk_p99": {"<=", 250},
		"walk/push_chunk_p99":  {"<=", 250},

		"level/last_to_first": {"<=", 1.1},

		"memory/small_peak":      {"<=", 64},
		"memory/middle_peak":     {"<=", 64},
		"memory/large_peak":      {"<=", 64},
		"memory/large_to_small":  {"<=", 1.2},
		"memory/large_to_middle": {"<=", 1.2},

		"latency/first_chunk_p99": {"<=", 50},

		"idle/statements":       {"<=", 2}, // a second
		"idle/named_statements": {"<=", 2},
		"idle/cpu":              {"<=", 0.2}, // per cent of a core
		"idle/named_cpu":        {"<=", 0.2},

		"radius/sparse_most_keys":     {"<=", 50_000}, // chunk.max_rows
		"radius/most_keys":            {"<=", 50_000},
		"radius/sparse_longest_chunk": {"<=", 250},

		"load/governed_p95_ratio":        {"<=", 1.25},     // of p95 alone
		"load/governed_p99_to_immediate": {"<=", 1.0 / 50}, // of p99 beside four immediate INSERTs
		"load/governed_speed":            {">=", 50_000},
		"load/idle_ratio":                {">=", 0.95}, // of the speed without health checks

		"river/ratio": {">=", 2},
		"stock/ratio": {">=", 0.95},

		"claims/free_p99_ratio": {"<=", 1.5},
		"claims/held_p99_ratio": {"<=", 1.5},
		"claims/held_to_free":   {"<=", 1.5},

		"orders/two_p99_ratio": {"<=", 1.1},
		"orders/one_p99_ratio": {"<=", 1.1},
	}
}

// goal is a bound, which itself meets it.
type goal struct {
	Compare string  `json:"compare"` // "<=" or ">="
	Value   float64 `json:"value"`
}

func (g goal) met(v float64) bool {
	if g.Compare == ">=" {
		return v >= g.Value
	}
	return v <= g.Value
}
