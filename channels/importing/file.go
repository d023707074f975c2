package importing

import (
	"fmt"
	"os"
	"strings"

	"github.com/belfryhq/belfry/internal/text"
)

// ParseColumns returns Options.Columns from texts of the form COLUMN=FIELD. The name of a column may contain
// =, the name of a field does not.
func ParseColumns(list []string) (map[string]string, error) {
	columns := make(map[string]string, len(list))
	for _, value := range list {
		i := strings.LastIndexByte(value, '=')
		if i < 1 {
			return nil, fmt.Errorf("%q is not allowed; write COLUMN=FIELD, such as uid=external_id", text.OneLine(value, 60))
		}
		column := strings.TrimSpace(value[:i])
		if _, again := columns[column]; again {
			return nil, fmt.Errorf("the column %s is named twice", text.OneLine(column, 60))
		}
		columns[column] = strings.TrimSpace(value[i+1:])
	}
	return columns, nil
}

// RejectName returns the default name of the rejects of a file; "-" is standard input.
func RejectName(file string) string {
	if file == "-" {
		file = "stdin"
	}
	return file + ".rejects.csv"
}

// RejectFile is a file for Options.Rejects. The first write creates it, so that a clean import leaves none.
type RejectFile struct {
	Name string
	file *os.File
}

// Write writes to the file.
func (r *RejectFile) Write(b []byte) (int, error) {
	if r.file == nil {
		file, err := os.Create(r.Name)
		if err != nil {
			return 0, err
		}
		r.file = file
	}
	return r.file.Write(b)
}

// Made returns the name of the file if it was created.
func (r *RejectFile) Made() string {
	if r.file == nil {
		return ""
	}
	return r.Name
}

// Close closes the file if it was created.
func (r *RejectFile) Close() error {
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}
