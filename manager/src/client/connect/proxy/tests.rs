use super::*;

fn read(url: &str) -> Option<(String, &'static str, Option<String>)> {
    let server = Uri::from_static("https://server:6443");
    let Proxy { address, protocol } = Proxy::new(&url.parse().unwrap(), &server).ok()?;
    let (protocol, user) = match protocol {
        Protocol::Connect(auth) => ("CONNECT", auth.map(|auth| auth.to_str().unwrap().to_owned())),
        Protocol::Socks(user) => ("SOCKS", user.map(|(user, password)| format!("{user} {password}"))),
    };
    Some((address.to_string(), protocol, user))
}

#[test]
fn a_proxy_url_gives_protocol_port_and_user() {
    let plain = |address: &str, protocol| Some((address.to_owned(), protocol, None));
    assert_eq!(read("http://proxy:3128"), plain("http://proxy:3128/", "CONNECT"));
    assert_eq!(read("proxy:3128"), plain("http://proxy:3128/", "CONNECT"), "as curl and Go read it");
    assert_eq!(read("http://proxy"), plain("http://proxy:80/", "CONNECT"));
    assert_eq!(read("https://proxy"), plain("https://proxy:443/", "CONNECT"));
    assert_eq!(read("socks5://[::1]"), plain("http://[::1]:1080/", "SOCKS"));
    assert_eq!(read("socks5h://proxy:1081"), plain("http://proxy:1081/", "SOCKS"));
    let (_, _, user) = read("http://me:a%40b@proxy:3128").unwrap();
    assert_eq!(user.unwrap(), format!("Basic {}", "bWU6YUBi"), "percent escapes are decoded");
    let (address, _, user) = read("socks5://me:a%40b@proxy").unwrap();
    assert_eq!((address.as_str(), user.as_deref()), ("http://proxy:1080/", Some("me a@b")));
    assert_eq!(read("ftp://proxy"), None);
    assert_eq!(read("socks4://proxy"), None);
    assert_eq!(read("/path"), None);
}

#[test]
fn a_server_without_a_port_has_the_default_port_of_its_scheme() {
    let server = |uri: &'static str| without_tls(&Uri::from_static(uri)).unwrap().to_string();
    assert_eq!(server("https://server/api?x"), "http://server:443/");
    assert_eq!(server("http://server"), "http://server:80/");
    assert_eq!(server("https://[::1]:6443/"), "http://[::1]:6443/");
}
