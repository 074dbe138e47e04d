package org.xuid.client;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.InvalidKeyException;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.PublicKey;
import java.security.Signature;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;
import java.util.Collection;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.net.ssl.KeyManager;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.TrustManagerFactory;

/**
 * How a client talks TLS: who vouches for a server, and what this client shows of itself. The files are read once.
 * Immutable.
 *
 * <pre>{@code
 * var tls = Tls.trusting(Path.of("ca.pem")).showing(Path.of("client.pem"), Path.of("client-key.pem"));
 * var client = XuidClient.connect(new XuidOptions("ids-1:7654").tls(tls));
 * }</pre>
 */
public final class Tls {
    private static final Pattern KEY =
            Pattern.compile("-----BEGIN PRIVATE KEY-----([A-Za-z0-9+/=\\s]+)-----END PRIVATE KEY-----");

    private final Collection<? extends Certificate> trusted;
    private final KeyManager[] identity;
    private final String serverName;
    private final SSLContext context;

    private Tls(Collection<? extends Certificate> trusted, KeyManager[] identity, String serverName) {
        this.trusted = trusted;
        this.identity = identity;
        this.serverName = serverName;
        try {
            KeyStore roots = empty();
            int at = 0;
            for (Certificate certificate : trusted) {
                roots.setCertificateEntry("ca" + at++, certificate);
            }
            TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
            trust.init(roots);
            context = SSLContext.getInstance("TLS");
            context.init(identity, trust.getTrustManagers(), null);
        } catch (GeneralSecurityException | IOException unfit) {
            throw new IllegalArgumentException("these certificates and this key cannot be used together", unfit);
        }
    }

    /**
     * Trusts servers for which the certificates in a file vouch, and shows no certificate.
     *
     * @param ca a file of one certificate or more, in PEM
     * @return the setting
     * @throws IOException if the file cannot be read
     * @throws IllegalArgumentException if the file has no certificate
     */
    public static Tls trusting(Path ca) throws IOException {
        return new Tls(certificates(ca), null, null);
    }

    /**
     * The same, and shows a certificate to servers that ask for one.
     *
     * @param certificate a file of the certificate, and of those between it and its CA, in PEM
     * @param key a file of its private key, in PEM, PKCS #8 and not encrypted
     * @return a new setting
     * @throws IOException if a file cannot be read
     * @throws IllegalArgumentException if a file does not hold what it should, or key and certificate are no pair
     */
    public Tls showing(Path certificate, Path key) throws IOException {
        Certificate[] chain = certificates(certificate).toArray(new Certificate[0]);
        PrivateKey secret = privateKey(key);
        try {
            if (!isPair(secret, chain[0].getPublicKey())) {
                throw new InvalidKeyException("the key is not that of the certificate");
            }
            KeyStore store = empty();
            store.setKeyEntry("own", secret, new char[0], chain);
            KeyManagerFactory keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
            keys.init(store, new char[0]);
            return new Tls(trusted, keys.getKeyManagers(), serverName);
        } catch (GeneralSecurityException unfit) {
            throw new IllegalArgumentException(certificate + " and " + key + " cannot be used together", unfit);
        }
    }

    /**
     * The same, with another name than the address has, for which a server's certificate must be.
     *
     * @param name the name in the certificates of all servers
     * @return a new setting
     */
    public Tls serverName(String name) {
        return new Tls(trusted, identity, name);
    }

    /** Shakes hands over a connected socket. */
    SSLSocket wrap(Socket socket, String host, int port) throws IOException {
        String name = serverName == null ? host : serverName;
        SSLSocket secured = (SSLSocket) context.getSocketFactory().createSocket(socket, name, port, true);
        SSLParameters parameters = secured.getSSLParameters();
        // Without it any certificate of a trusted CA would do, whatever name it is for.
        parameters.setEndpointIdentificationAlgorithm("HTTPS");
        secured.setSSLParameters(parameters);
        secured.startHandshake();
        return secured;
    }

    /** No key store asks that by itself, and a server would only see a handshake that fails. */
    private static boolean isPair(PrivateKey secret, PublicKey open) throws GeneralSecurityException {
        String algorithm = secret.getAlgorithm();
        if (!algorithm.equals(open.getAlgorithm())) {
            return false;
        }
        String kind = algorithm.equals("RSA") ? "SHA256withRSA" : algorithm.equals("EC") ? "SHA256withECDSA" : algorithm;
        Signature signature = Signature.getInstance(kind);
        signature.initSign(secret);
        signature.update((byte) 1);
        byte[] signed = signature.sign();
        signature.initVerify(open);
        signature.update((byte) 1);
        return signature.verify(signed);
    }

    private static KeyStore empty() throws GeneralSecurityException, IOException {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        return store;
    }

    private static Collection<? extends Certificate> certificates(Path file) throws IOException {
        byte[] pem = Files.readAllBytes(file);
        try {
            var found = CertificateFactory.getInstance("X.509").generateCertificates(new ByteArrayInputStream(pem));
            if (!found.isEmpty()) {
                return found;
            }
            throw new IllegalArgumentException(file + " has no certificate in PEM");
        } catch (GeneralSecurityException unfit) {
            throw new IllegalArgumentException(file + " has no certificate in PEM that can be read", unfit);
        }
    }

    private static PrivateKey privateKey(Path file) throws IOException {
        Matcher pem = KEY.matcher(Files.readString(file, StandardCharsets.US_ASCII));
        if (!pem.find()) {
            throw new IllegalArgumentException(file + " has no private key in PEM of PKCS #8 ('BEGIN PRIVATE KEY'): "
                    + "convert it with openssl pkcs8 -topk8 -nocrypt");
        }
        var spec = new PKCS8EncodedKeySpec(Base64.getMimeDecoder().decode(pem.group(1)));
        for (String algorithm : new String[] {"EC", "RSA", "Ed25519"}) {
            try {
                return KeyFactory.getInstance(algorithm).generatePrivate(spec);
            } catch (GeneralSecurityException unfit) {
                // Another algorithm may fit. Java 11 has no Ed25519.
            }
        }
        throw new IllegalArgumentException(file + " has a private key that is neither EC nor RSA nor Ed25519");
    }
}
