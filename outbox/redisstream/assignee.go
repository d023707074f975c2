package redisstream

import (
	"crypto/sha256"
	"encoding/binary"
	"strconv"
)

const (
	// reclaimPage is the page size of the search for idle entries; reclaimable, the maximum per tick.
	reclaimPage = 500
	reclaimable = 100 * reclaimPage
	// suspicious is the number of deliveries from which an entry is stored in dead if its message is DEAD.
	suspicious = 3
)

// assignee returns the live consumer that takes over an idle entry, by rendezvous hashing: the consumer
// with the highest weight for the entry. A new or removed consumer affects only its own share. The number
// of deliveries is hashed too, so that the next delivery goes to another consumer.
func assignee(id string, deliveries int64, alive []string) (best string) {
	var highest uint64
	text := make([]byte, 0, 128)
	for _, name := range alive {
		text = append(append(text[:0], id...), ' ')
		text = append(strconv.AppendInt(text, deliveries, 10), ' ')
		sum := sha256.Sum256(append(text, name...))
		weight := binary.BigEndian.Uint64(sum[:8])
		if best == "" || weight > highest || weight == highest && name < best {
			best, highest = name, weight
		}
	}
	return best
}
