package operation

// Noun is the first word of the names of a group of operations.
type Noun struct {
	Name, Short string
	Aliases     []string
}

// Nouns returns the nouns of all operations, in the order of help texts.
func Nouns() []Noun {
	return []Noun{
		{Name: "jobs", Short: "List, show, change and approve jobs; show their events and skipped recipients"},
		{Name: "lanes", Short: "List, pause and resume lanes"},
		{Name: "categories", Short: "List and add categories; change their routes, quiet hours and caps"},
		{Name: "dead-letters", Short: "List dead letters, return them to the queue, or discard them", Aliases: []string{"dlq", "dead"}},
		{Name: "schedules", Short: "List, show, add, pause and fire recurring schedules"},
		{Name: "channels", Short: "Import, count and check recipient channels, attach a table, manage opt-outs"},
		{Name: "channels segment", Short: "Manage named sets of channels"},
		{Name: "senders", Short: "List, limit and pause the senders of live relays"},
		{Name: "transport", Short: "Show, rebuild or empty the carrier of the relays"},
		{Name: "limits", Short: "Show or change the limits of enqueuers"},
		{Name: "events", Short: "Show the audit log"},
		{Name: "tokens", Short: "List, create and revoke tokens of the HTTP API"},
		{Name: "users", Short: "List, add and change users of the HTTP API"},
		{Name: "sessions", Short: "List and revoke sessions of the HTTP API"},
	}
}
