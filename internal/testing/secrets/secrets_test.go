package secrets_test

import (
	"encoding/base64"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/secrets"
)

func TestFind(t *testing.T) {
	t.Parallel()
	require.Nil(t, secrets.Find("an order of a tenant with a payload, a header and a password"))
	for _, secret := range []string{secrets.Payload, secrets.Header, secrets.Tenant, secrets.Password} {
		for _, text := range []string{
			secret, fmt.Sprintf("near %q", secret), fmt.Sprintf("0x%x", secret), fmt.Sprintf("%X", secret), fmt.Sprint([]byte(secret)), //nolint:staticcheck // the numbers are meant
			"basic " + base64.StdEncoding.EncodeToString([]byte("u:"+secret)),
			base64.StdEncoding.EncodeToString([]byte(secret + "!")), base64.StdEncoding.EncodeToString([]byte("x" + secret + "!")),
		} {
			require.Equal(t, []string{secret}, secrets.Find("a "+text+" b"), text)
		}
	}
	require.Equal(t, []string{secrets.Payload}, secrets.Find(fmt.Sprintf("%.20q", secrets.JSON)), "a quotation that was cut")
	require.Equal(t, []string{secrets.Header, secrets.Tenant}, secrets.Find(secrets.Tenant+secrets.Header))
}
