package jws_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/belfryhq/belfry/outbox/sender/jws"
)

func ExampleES256() {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		fmt.Println(err)
		return
	}
	token, err := jws.ES256(key, map[string]string{"alg": "ES256"}, map[string]string{"iss": "TEAM567890"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(token[:strings.LastIndexByte(token, '.')])
	// Output: eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJURUFNNTY3ODkwIn0
}
