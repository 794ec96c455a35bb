use super::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
use tokio::time::Instant;

const LIMIT: Duration = Duration::from_secs(10);

#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_read_or_reads_slowly_times_out() {
    for every in [None, Some(Duration::from_secs(1))] {
        let (ours, mut theirs) = duplex(8);
        let mut ours = WriteTimeout::new(LIMIT, ours);
        let began = Instant::now();
        let reading = async {
            while let Some(every) = every {
                sleep(every).await;
                theirs.read_u8().await.unwrap();
            }
            std::future::pending::<()>().await;
        };
        let written = tokio::select! {
            biased;
            written = ours.write_all(&[0; 64]) => written,
            () = reading => unreachable!(),
        };
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut, "{every:?}");
        assert!(began.elapsed() >= LIMIT && began.elapsed() < LIMIT * 2, "{every:?}: {:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn each_answer_has_the_whole_limit_and_pauses_between_answers_do_not_count() {
    let (ours, mut theirs) = duplex(8);
    let mut ours = WriteTimeout::new(LIMIT, ours);
    for _ in 0..3 {
        let reading = async {
            sleep(LIMIT.saturating_sub(Duration::from_millis(1))).await;
            theirs.read_exact(&mut [0; 64]).await.unwrap();
        };
        let writing = async {
            ours.write_all(&[0; 64]).await.unwrap();
            ours.flush().await.unwrap();
        };
        tokio::join!(writing, reading);
        sleep(LIMIT * 2).await;
    }
}
