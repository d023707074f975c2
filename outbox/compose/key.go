package compose

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/google/uuid"
)

// Key is the idempotency key of a message by one medium: a UUID in lower-case text, of
// version 8 (RFC 9562), from the SHA-256 of
//
//	installation (16 bytes) | job id (8, big endian) | channel id (8) | medium
//
// It is the same in every attempt, after a redrive, and in every relay; other media and
// other databases have others.
func Key(installation [16]byte, jobID, channelID int64, medium string) string {
	b := make([]byte, 0, 64)
	b = append(b, installation[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(jobID))     //nolint:gosec // the bits as they are
	b = binary.BigEndian.AppendUint64(b, uint64(channelID)) //nolint:gosec // the bits as they are
	sum := sha256.Sum256(append(b, medium...))
	id := uuid.UUID(sum[:16])
	id[6] = id[6]&0x0f | 0x80 // version 8
	id[8] = id[8]&0x3f | 0x80 // variant of RFC 9562
	return id.String()
}
