package settings

import (
	_ "embed"
	"errors"
	"os"
)

// starter is a commented configuration file with the keys that a new installation sets first.
//
//go:embed starter.yaml
var starter string

// WriteStarter writes a commented configuration file with the keys that a new installation sets first.
// Only its owner may read it. The error is fs.ErrExist if a file with the name exists.
func WriteStarter(name string) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteString(starter)
	return errors.Join(err, file.Close())
}
