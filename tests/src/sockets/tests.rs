use super::*;

#[tokio::test]
async fn a_prerequisite_refuses_until_it_comes_up_and_after_it_went_down() {
    let mut prerequisite = Prerequisite::closed();
    let refused = || TcpStream::connect(prerequisite.address());
    assert!(refused().await.is_err(), "no socket listens yet");
    prerequisite.come_up();
    TcpStream::connect(prerequisite.address()).await.expect("it is up");
    prerequisite.connected(1).await;
    prerequisite.go_down().await;
    assert!(TcpStream::connect(prerequisite.address()).await.is_err(), "no socket listens any more");
    prerequisite.come_up();
    TcpStream::connect(prerequisite.address()).await.expect("it is up again");
    prerequisite.fall_silent().await;
    let answer = tokio::time::timeout(UNANSWERED, TcpStream::connect(prerequisite.address())).await;
    assert!(answer.is_err(), "expected no answer at all, got {answer:?}");
    prerequisite.come_up();
    TcpStream::connect(prerequisite.address()).await.expect("it answers again");
}

#[tokio::test]
async fn a_black_hole_neither_accepts_nor_refuses() {
    let hole = black_hole().await;
    let answer = tokio::time::timeout(UNANSWERED, TcpStream::connect(hole.address())).await;
    assert!(answer.is_err(), "expected no answer at all, got {answer:?}");
}
