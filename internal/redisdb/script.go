package redisdb

import (
	"io/fs"

	"github.com/redis/go-redis/v9"
)

// MustScript returns the Lua script NAME.lua of a file system that is embedded in the program. It panics if
// the file does not exist.
func MustScript(files fs.FS, name string) *redis.Script {
	text, err := fs.ReadFile(files, name+".lua")
	if err != nil {
		panic(err)
	}
	return redis.NewScript(string(text))
}
