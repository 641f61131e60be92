//go:build race

package chaos_test

func init() { buildArguments = []string{"-race"} }
