package dashboard

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"time"
)

// tokenLife is how long a form may stay open.
const tokenLife = 4 * time.Hour

// A token is the time in seconds, eight bytes, and the HMAC of user, outbox, scope and time.

// Token returns the token for a form of this scope.
func (p *page) Token(scope string) string {
	at := binary.BigEndian.AppendUint64(nil, uint64(p.Now.Unix()))
	return base64.RawURLEncoding.EncodeToString(append(at, p.sign(scope, at)...))
}

func (p *page) sign(scope string, at []byte) []byte {
	mac := hmac.New(sha256.New, p.dashboard.config.CSRFKey)
	for _, part := range []string{p.User, p.Name, scope} {
		mac.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		mac.Write([]byte(part))
	}
	mac.Write(at)
	return mac.Sum(nil)
}

// checkToken refuses a form that this user did not get from this page, or got too long ago.
func (p *page) checkToken(scope, token string) error {
	bytes, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(bytes) != 8+sha256.Size || !hmac.Equal(bytes[8:], p.sign(scope, bytes[:8])) {
		return &problem{http.StatusForbidden, "Refused", "The field \"token\" is missing or wrong: the form was not made by this page for you. If several processes serve this page, they need the same CSRFKey. Go back, reload the page, and send the form again."}
	}
	age := p.Now.Sub(time.Unix(int64(binary.BigEndian.Uint64(bytes[:8])), 0))
	if age > tokenLife || age < -time.Minute {
		return &problem{http.StatusForbidden, "Refused", "The field \"token\" is too old: the form was open for hours. Go back, reload the page, and send the form again."}
	}
	return nil
}
