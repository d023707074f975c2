package outbox

import "github.com/jackc/pgx/v5/pgtype"

// Anywhere returns messages without where their claim left them.
func Anywhere(claimed []Claimed) []Claimed {
	bare := make([]Claimed, len(claimed))
	for i, c := range claimed {
		c.tid = pgtype.TID{}
		bare[i] = c
	}
	return bare
}

// Misplaced returns a message with where the claim left another one.
func Misplaced(c, other Claimed) Claimed {
	c.tid = other.tid
	return c
}

// WaitForClaims makes claims wait for other claims of their job as long as for other locks.
func (l *Ledger) WaitForClaims() { l.claimWait = ledgerTimeout }

// WaitForMessages makes settlements wait for locked messages as long as for other locks.
func (l *Ledger) WaitForMessages() { l.settleWait = ledgerTimeout }
