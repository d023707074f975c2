package accounts

// AuditLines are what an audit says of how it goes.
var AuditLines = auditLines

// StreamedRows is how many rows an item of a stream has at most.
const StreamedRows = streamedRows

// InBatches hands rows on in slices.
func InBatches[T any](each func([]T) error) (add func(T) error, end func() error) {
	return inBatches(each)
}
